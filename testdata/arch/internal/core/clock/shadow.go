package clock

// A variable that is called like the package is not the package.
func shadow() {
	time := struct{ Now func() int }{}
	_ = time.Now()
}
