"""What the control plane does; API, admin, beat and workers are skins over these functions."""
