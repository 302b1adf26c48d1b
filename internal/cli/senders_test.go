package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/lib/command"
)

func someSenders(now time.Time) *answer.Senders {
	lag := 31.25
	seen := float64(now.Unix() - 12)
	return &answer.Senders{
		Tenant: "default", Counting: true, StepTime: 15, Node: "a",
		Nodes:  []answer.SenderNode{{Name: "a"}, {Name: "b", Error: "the node does not answer"}},
		Others: answer.OtherSenders{Senders: 7, Samples: 12},
		Senders: []answer.Sender{
			{Input: "remote_write", Node: "a", ViewSender: top.ViewSender{Address: "10.0.0.1"}, Agent: "Prometheus/3.5.0",
				Samples: 12_345, Seen: seen, Lag: &lag, Refused: map[string]uint64{"too_old": 4711, "duplicate": 3}},
			{Input: "otlp", Node: "a", Name: "shop", ViewSender: top.ViewSender{Address: "10.0.0.9"}, Agent: "otel/1",
				Samples: 700, Seen: seen},
			{Input: "dogstatsd", Node: "a", Samples: 99.5, Seen: seen,
				ViewSender: top.ViewSender{Process: &top.ViewProcess{PID: 7, UID: 1000, Command: "app"}}},
			{Input: "collector", Name: "web-1", ID: "0000000000000007", Samples: 0, Seen: float64(now.Unix() - 90)},
		},
	}
}

// The golden file shows what users see.
func TestSendersPage(t *testing.T) {
	now := time.Unix(1_795_167_065, 0)
	got, err := sendersPage(someSenders(now), now)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "senders.txt", got)

	got, err = sendersPage(&answer.Senders{Tenant: "default"}, now)
	if err != nil || !strings.Contains(got, "Nobody has sent anything") {
		t.Errorf("without senders: %q, %v", got, err)
	}
}

// The first answer of a server lacks the senders of DogStatsD, so the command asks again.
func TestSendersWaitsUntilTheServerCounts(t *testing.T) {
	asked := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := someSenders(time.Now())
		asked++
		a.Counting = asked > 1
		if r.FormValue("limit") != "5" || r.FormValue("local") != "true" {
			t.Errorf("the command asked for %s", r.URL)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": a})
	}))
	defer web.Close()
	code, stdout, stderr := freshet(t, "senders", "--json", "--local", "--limit", "5", "--server", web.URL)
	var got struct{ Data answer.Senders }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != command.OK || !got.Data.Counting || asked != 2 {
		t.Errorf("exit code %d, %v, asked %d times: %s%s", code, err, asked, stdout, stderr)
	}
	code, _, stderr = freshet(t, "senders", "--limit", "1000")
	if code == command.OK || !strings.Contains(stderr, "from 1 to 100") {
		t.Errorf("a limit of 1000: exit code %d, %s", code, stderr)
	}
}
