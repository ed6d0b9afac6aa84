"""The rewrites, one a file; a file added here is found by radiance_patch.registry."""
