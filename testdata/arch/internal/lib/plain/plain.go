// Package plain is a library that keeps the rules.
package plain

import _ "os"
