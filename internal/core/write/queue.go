package write

import "strings"

// resultsQueue ends the name of a queue of results. No tenant's name has a slash.
const resultsQueue = "/rules"

// QueueOf names the requests of a tenant that go to one store, one after the other: those of senders, whose queue has
// the tenant's name, or the results of rules.
func QueueOf(tenant string, results bool) string {
	if results {
		return tenant + resultsQueue
	}
	return tenant
}

// TenantOf returns the tenant of a queue.
func TenantOf(queue string) string { return strings.TrimSuffix(queue, resultsQueue) }
