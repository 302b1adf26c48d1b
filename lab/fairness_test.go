package main

import (
	"testing"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// In two short pairs, most samples of the tenant "one" are refused, but no samples of the other tenants
// are. Times do not matter here.
func TestFairPairs(t *testing.T) {
	part := &report.Fairness{Tenants: 4, Batch: fairBatch, OneBatch: oneBatch, Limit: oneLimit, Times: oneTimes}
	if err := serverLab(t).fairServer(t.Context(), part,
		fairPlan{flatOut: 200 * time.Millisecond, pairs: 2, half: time.Second, requests: 100}); err != nil {
		t.Fatal(err)
	}
	if len(part.Alone) != 2 || len(part.Beside) != 2 || len(part.Rate) != 2 || part.Alone[0] <= 0 || part.Beside[1] <= 0 ||
		part.Requests < 400 {
		t.Errorf("figures are missing: %+v", part)
	}
	if part.Acknowledged == 0 || part.Lost() != 0 {
		t.Errorf("%d samples of the other tenants are stored, want the %d that were acknowledged",
			part.Stored, part.Acknowledged)
	}
	if part.Refused == 0 || part.Refused >= part.Sent {
		t.Errorf("the tenant one sent %d requests, of which %d were refused; want some refused, but not all",
			part.Sent, part.Refused)
	}
}
