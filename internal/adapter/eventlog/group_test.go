package eventlog

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/member"
)

// entryOf returns an entry of a group's log with events of tenant a. Its bounds keep at most `most`
// events, for 100 ms.
func entryOf(index uint64, arrival int64, most int, titles ...string) *member.Events {
	e := entry.Events{Tenant: "a", Arrival: arrival, Retention: 100, MaxEvents: most}
	for _, title := range titles {
		e.List = e.List.Append((&event.Event{Time: arrival, Title: title}).AppendDated(nil))
	}
	return &member.Events{Index: index, Events: e}
}

// All members keep the same events of the same log. Their own bounds and clocks do not matter, nor the
// number of steps in which they write the entries, nor a restart that writes some entries again.
func TestMembersKeepTheSameEvents(t *testing.T) {
	log := []*member.Events{
		entryOf(3, 1000, 3, "1", "2"), entryOf(5, 1010, 2, "3"), entryOf(7, 1020, 5, "4", "5"), entryOf(9, 1115, 5, "6"),
		entryOf(11, 1116, 5, "7"),
	}
	const want = "1116 7,1115 6,1020 5,1020 4"
	for name, steps := range map[string][][]*member.Events{
		"one step":           {log},
		"a step for each":    {log[:1], log[1:2], log[2:3], log[3:4], log[4:]},
		"a replay":           {log[:3], log[:3], log[3:]},
		"a replay from half": {log, log[1:]},
		"a restart":          {log[:2], nil, log[1:4], nil, log[3:]},
	} {
		c, path := &clock{ms: 1_000_000}, filepath.Join(t.TempDir(), "events.db")
		l := open(t, Config{MaxEvents: 1, Retention: time.Hour}, path, c)
		for _, some := range steps {
			if some == nil {
				l.Close()
				l = open(t, Config{MaxEvents: 1, Retention: time.Hour}, path, c)
			}
			if err := l.AppendEntries(t.Context(), 0, some); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(titles(t, l, all("a")), ","); got != want {
			t.Errorf("%s: the log has %s, want %s", name, got, want)
		}
		if err := l.AppendEntries(t.Context(), 1, log[:1]); err != nil { // another group has its own indexes
			t.Fatal(err)
		}
		if got := titles(t, l, all("a")); !slices.Contains(got, "1000 1") && len(got) > 3 {
			t.Errorf("%s: the entry of another group was skipped: %q", name, got)
		}
	}
}

// A file that was copied later than the log of the group has events of entries that the copied log
// lacks. Other entries that later get these indexes are stored.
func TestALogThatEndsEarlier(t *testing.T) {
	l, _ := start(t, DefaultConfig())
	appended := func(e *member.Events) {
		t.Helper()
		if err := l.AppendEntries(t.Context(), 0, []*member.Events{e}); err != nil {
			t.Fatal(err)
		}
	}
	appended(entryOf(9, 1000, 5, "copied"))
	for _, last := range []uint64{7, 9} {
		if err := l.Reaches(0, last); err != nil {
			t.Fatal(err)
		}
	}
	appended(entryOf(7, 1000, 5, "known"))
	appended(entryOf(8, 1000, 5, "other"))
	if got := strings.Join(titles(t, l, all("a")), ","); got != "1000 other,1000 copied" {
		t.Errorf("the log has %s", got)
	}
}

func TestAnEntryThatCannotBeRead(t *testing.T) {
	l, _ := start(t, DefaultConfig())
	bad := entryOf(3, 1000, 5, "good")
	bad.List = bad.List.AppendText("bad")
	if err := l.AppendEntries(t.Context(), 0, []*member.Events{bad}); err == nil {
		t.Error("stored")
	}
	if got := titles(t, l, all("a")); len(got) > 0 {
		t.Errorf("half of an entry is stored: %q", got)
	}
}
