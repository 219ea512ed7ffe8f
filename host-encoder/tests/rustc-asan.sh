#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The compiler with AddressSanitizer, which it has for nightly releases only unless it is asked like this. For the workspace's crates alone: others do not have
# to be built again. (They call the same allocator, so what they are lent is watched, too.)
RUSTC_BOOTSTRAP=1 exec "$@" -Zsanitizer=address
