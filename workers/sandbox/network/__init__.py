"""Network of a run: blocked addresses, the namespace, and slirp4netns as its uplink.

`rules` computes what to block, `netlink` blocks it inside the slot, `uplink` starts slirp4netns.
"""
