package buf

import "testing"

// had returns a buffer that is not of the pool, with one user.
func had(bytes []byte) *Buf {
	b := &Buf{B: bytes}
	b.users.Store(1)
	return b
}

func TestTheLastUserGivesItBack(t *testing.T) {
	b := Get()
	b.B = append(b.B, "bytes"...)
	view := b.B
	other := b.Keep()
	b.Release()
	if string(view) != "bytes" {
		t.Errorf("%q while there is still a user", view)
	}
	other.Release()
	if Poisoned && string(view) != "\xdb\xdb\xdb\xdb\xdb" {
		t.Errorf("%q after the last user let go", view)
	}
	if b := Get(); len(b.B) != 0 {
		t.Errorf("a new buffer has %d bytes", len(b.B))
	}
}

func TestMistakesPanic(t *testing.T) {
	for what, f := range map[string]func(*Buf){
		"released twice":     func(b *Buf) { b.Release(); b.Release() },
		"kept when released": func(b *Buf) { b.Release(); b.Keep() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s, without a panic", what)
				}
			}()
			f(had(nil))
		}()
	}
}

func TestLongBuffersGo(t *testing.T) {
	b := had(make([]byte, maxKept+1))
	b.Release()
	if cap(b.B) != 0 {
		t.Errorf("%d bytes are kept", cap(b.B))
	}
}
