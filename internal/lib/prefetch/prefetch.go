// Package prefetch asks the CPU to load memory into its caches without waiting. A read loads memory,
// too. But while the read waits, the CPU executes only a few hundred instructions ahead, and two
// lookups in a hash table are further apart.
package prefetch
