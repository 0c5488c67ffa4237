"""Network of a run: blocked addresses, the namespace, and slirp4netns as its uplink.

`netlink` blocks inside the slot what `rules` computes. Entry points: `rules.build_blocklist`, `uplink.Uplink`.
"""
