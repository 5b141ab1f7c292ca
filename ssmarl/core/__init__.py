"""What every other package builds on: errors, types, settings, files, devices, registries."""
