package tile

// check keeps the last status of a service check, 0 to 3: a gauge that lives longer.
type check struct{ gauge }
