"""What every other package builds on: errors, types, settings, files, devices, registries."""

from ssmarl.core.compiler import use_reliable_reductions

use_reliable_reductions()
