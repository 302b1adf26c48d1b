// Package prefetch asks the CPU to bring memory into its caches, without waiting for
// it. Reading it would do so as well, but an instruction that waits for memory holds
// up those behind it after some hundred of them: between two places that are looked up
// by a hash there are more.
package prefetch
