package settings

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Each problem names the setting and the values that are valid.
func TestDogStatsD(t *testing.T) {
	c := DefaultDogStatsD()
	if problems := c.Validate(); len(problems) > 0 {
		t.Fatalf("the default has the problems %v, want none", problems)
	}
	c.Tenant, c.Readers, c.ReceiveBuffer, c.MaxPacket, c.SocketMode, c.IdleContexts = "a/b", 0, 1, 1, "999", time.Second
	c.Listeners = []Listener{{"tcp", "", ".."}}
	var keys []string
	for _, p := range c.Validate() {
		keys = append(keys, p.Key)
		if !strings.Contains(p.Text, "must ") && !strings.Contains(p.Text, "give ") && !strings.Contains(p.Text, ";") {
			t.Errorf("the problem %s: %s does not say how to fix it", p.Key, p.Text)
		}
	}
	slices.Sort(keys)
	want := []string{"idle_contexts", "listeners[0].address", "listeners[0].network", "listeners[0].tenant",
		"max_packet", "readers", "receive_buffer", "socket_mode", "tenant"}
	if !slices.Equal(keys, want) {
		t.Errorf("got problems with the keys\n %v, want\n %v", keys, want)
	}
	for mode, valid := range map[string]bool{
		"0722": true, "666": true, "0": true, "1777": false, "rw": false, "-1": false,
	} {
		c := DefaultDogStatsD()
		c.SocketMode = mode
		if got := len(c.Validate()) == 0; got != valid {
			t.Errorf("socket_mode %s: valid %t, want %t", mode, got, valid)
		}
	}
}
