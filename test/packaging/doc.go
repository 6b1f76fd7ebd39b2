// Package packaging tests what is released (internal/dist) and the files that run it
// elsewhere (packaging/): packages are built, looked into and installed, and whatever a
// unit, an image or a manifest says to the program is said to the program.
package packaging
