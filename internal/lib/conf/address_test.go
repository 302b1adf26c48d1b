package conf

import "testing"

func TestAddressProblem(t *testing.T) {
	for _, c := range []struct {
		address string
		ok      bool
	}{
		{"127.0.0.1:8125", true}, {":0", true}, {"[::1]:65535", true}, {"localhost:80", true},
		{"localhost", false}, {"1.2.3.4", false}, {"::1:80", false}, {"", false},
		{":65536", false}, {":-1", false}, {":http", false}, {":+80", false}, {":", false},
	} {
		if got := AddressProblem(c.address, "127.0.0.1:80"); (got == "") != c.ok {
			t.Errorf("AddressProblem(%q) = %q", c.address, got)
		}
	}
}
