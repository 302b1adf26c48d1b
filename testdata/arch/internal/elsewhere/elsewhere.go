// Package elsewhere lies in no layer.
package elsewhere
