// Package clients measures our DogStatsD client beside datadog-go, the one that most Go
// services use. Run it with
//
//	go test -C lab -bench . ./clients
//
// The client's own module holds none of this, since it needs nothing but the standard library.
package clients
