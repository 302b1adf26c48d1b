// Package index is one of those that core may import.
package index
