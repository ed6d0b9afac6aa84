"""`python -m radiance_patch` is `radiance-patch`."""

from radiance_patch.cli import main

if __name__ == "__main__":
    main()
