// Package clients measures our DogStatsD client beside datadog-go, the client that most Go
// services use. Run it with
//
//	go test -C lab -bench . ./clients
//
// This package is not in the client's module, since that module needs only the standard library.
package clients
