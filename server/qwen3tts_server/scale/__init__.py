"""Many replicas of the server behind one address, by Ray Serve; see docs/scale.md."""
