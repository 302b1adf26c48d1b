package main

// Colours, as a terminal is told them, and what ends each.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
	plain  = "\x1b[0m"
)
