"""The environments behind the interfaces of other trainers, one module for each."""
