// Package format is a part of its adapter, not another one.
package format
