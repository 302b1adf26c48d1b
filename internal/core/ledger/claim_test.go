package ledger

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// collector returns the books of a collector with the given number of tenants. Tenant i has i samples.
func collector(tenants int) Claim {
	l := New()
	for i := range tenants {
		name, n := fmt.Sprintf("tenant-%04d", i), uint64(i)
		l.Post(name, Transfer{From: Outside, To: Received, Samples: n},
			Transfer{From: Received, To: Window, Samples: n},
			Transfer{From: Window, To: HandedOver, Samples: n / 2},
			Transfer{From: Window, To: Unsent, Reason: "outbox_full", Samples: n / 3})
		l.Datagrams(name, Datagrams{Read: n, CutFrames: 1})
		l.Client(name, PacketsSent, 3)
	}
	return Claim{Tenants: l.Books().Tenants}
}

// A collector tells the books of the tenants with the most samples, and the sum of all other tenants.
func TestBooksOfACollector(t *testing.T) {
	for _, tenants := range []int{0, 1, 5, MaxTenants + 10} {
		b := collector(tenants)
		told, size := b.Encode(), 0
		sum := map[string]Tenant{}
		for name, text := range told {
			size += len(name) + len(text)
			parsed, err := ParseTenant(text)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			own := b.Tenants[name]
			own.Copied = Samples{}
			if name != Others && !reflect.DeepEqual(parsed, own) {
				t.Errorf("tenant %s is told as\n%+v, and has\n%+v", name, parsed, own)
			}
			sum[name] = parsed
		}
		all := func(of map[string]Tenant) (x Tenant) {
			var list []Tenant
			for _, t := range of {
				t.Copied = Samples{}
				list = append(list, t)
			}
			return Sum(list, Samples{})
		}
		if got, want := all(sum), all(b.Tenants); !reflect.DeepEqual(got, want) {
			t.Errorf("of %d tenants, the told books add up to\n%+v, want\n%+v", tenants, got, want)
		}
		if size > MaxClaim || tenants > MaxTenants && (len(told) < 15 || sum["tenant-0999"].Samples.Received != 999) {
			t.Errorf("of %d tenants, %d are told in %d bytes", tenants, len(told), size)
		}
	}
}

// The books of another process are read within bounds, whatever it says.
func TestBooksThatCannotBeTrue(t *testing.T) {
	many := map[string]uint64{}
	for i := range maxReasons + 1 {
		many[fmt.Sprint("r", i)] = 1
	}
	text, err := json.Marshal(Tenant{Samples: Samples{Late: many}})
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"too many reasons":   string(text),
		"a sentence":         `{"samples":{"refused":{"see http://example.com":1}}}`,
		"no reason":          `{"samples":{"refused":{"":1}}}`,
		"a long reason":      `{"samples":{"unsent":{"` + strings.Repeat("x", maxReason+1) + `":1}}}`,
		"a huge count":       `{"samples":{"received":18446744073709551615}}`,
		"a huge reason":      `{"samples":{"malformed":{"x":18446744073709551615}}}`,
		"huge datagrams":     `{"datagrams":{"read":1125899906842625}}`,
		"a negative count":   `{"samples":{"stored":-1}}`,
		"no JSON":            "",
		"JSON of other form": `[]`,
	} {
		if b, err := ParseTenant([]byte(text)); err == nil {
			t.Errorf("%s: %+v", what, b)
		}
	}
	b, err := ParseTenant([]byte(`{"samples":{"received":5,"handed_over":3,"difference":0},` +
		`"datagrams":{"received":1,"read":2},"clients":{"packets_sent":4,"<b>":1,"bytes_sent":-1}}`))
	if err != nil || b.Samples.Difference != 2 || b.Datagrams.Received != 2 ||
		fmt.Sprint(b.Clients) != "map[packets_sent:4]" || b.Samples.Refused == nil {
		t.Errorf("%+v, %v, want the difference of the counts, and only known counts of clients", b, err)
	}
}

// Books that are not refused stay the same when they are told on, and can be added up.
func FuzzParseTenant(f *testing.F) {
	claim := collector(3)
	for _, text := range claim.Encode() {
		f.Add(text)
	}
	f.Add([]byte(`{"samples":{"late":null},"clients":{"bytes_sent":1e400}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		once, err := ParseTenant(text)
		if err != nil {
			return
		}
		again, err := ParseTenant(encodeTenant(once))
		if err != nil || len(once.Clients) != len(again.Clients) || !reflect.DeepEqual(once.Samples, again.Samples) {
			t.Errorf("%+v becomes %+v, %v", once, again, err)
		}
		if sum := Sum([]Tenant{once, once}, Samples{}); sum.Samples.Difference != 2*once.Samples.Difference ||
			sum.Samples.Received != 2*once.Samples.Received {
			t.Errorf("the sum of %+v is %+v", once, sum)
		}
	})
}
