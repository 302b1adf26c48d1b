// Package prefetch asks the CPU to load memory into its caches without waiting. A read loads
// it, too, but the CPU runs only some hundred instructions ahead of a read that waits, and
// there are more between two lookups in a hash table.
package prefetch
