// Command release builds what a release of Freshet consists of, into one directory: binaries for each
// architecture, what is in each (an SBOM), packages for Debian and for RPM, images, and checksums. `make
// release-snapshot` runs it. It needs Go and git, and no root, no container runtime and no package tools. From one
// commit and one version of Go it always makes the same bytes.
//
// This is a module of its own, so that the binary's go.mod has nothing of it.
package main
