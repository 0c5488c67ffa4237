"""Proofs that take minutes: beats killed at random, deliberate mistakes, a brute-force oracle. See CONTRIBUTING.md."""
