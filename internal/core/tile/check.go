package tile

// check keeps the last status of a service check, 0 to 3: a gauge with a longer time to live.
type check struct{ gauge }
