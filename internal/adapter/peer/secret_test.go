package peer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecrets(t *testing.T) {
	s := secret(t)
	push, err := ParseSecret(s.Push())
	if err != nil || !push.OnlyPush() || s.OnlyPush() || push.Push() != s.Push() {
		t.Fatalf("the parsed push secret has the text %q, want %q; error %v", push.Push(), s.Push(), err)
	}
	again, err := ParseSecret("\n a secret for all tests \n")
	if err != nil || !again.nodes.Equal(s.nodes) || !again.pushers.Equal(s.pushers) || s.nodes.Equal(s.pushers) {
		t.Errorf("a secret with space around it: error %v, keys that the space changed, or two equal keys", err)
	}
	if strings.Contains(s.Push(), "secret for") {
		t.Error("the push secret contains the secret")
	}
	if a, b := NewSecret(), NewSecret(); a == b || len(a) < minSecret {
		t.Errorf("new secrets are %q and %q, want two different ones of at least %d bytes", a, b, minSecret)
	}
}

func TestBadSecretsSayTheWayOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for text, want := range map[string]string{
		" short  \n": "has 5 characters, but at least 16 are needed; make one with: freshet cluster secret",
		"":           "has 0 characters",
		secret(t).Push()[:len(secret(t).Push())-1]: "freshet cluster secret --push",
		pushPrefix: "damaged or cut",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSecret(file); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), file) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := ReadSecret(file + "x"); err == nil {
		t.Error("ReadSecret accepts a missing file")
	}
}
