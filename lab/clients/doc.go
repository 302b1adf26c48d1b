// Package clients measures our DogStatsD client beside datadog-go, the client that most Go
// services use. Run it with
//
//	go test -C lab -bench . ./clients
//
// It is not in the client's module, which needs only the standard library.
package clients
