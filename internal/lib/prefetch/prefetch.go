// Package prefetch asks the CPU to load memory into its caches without waiting. A read loads it,
// too, but the CPU runs only some hundred instructions ahead of a waiting read, and two lookups in
// a hash table are further apart than that.
package prefetch
