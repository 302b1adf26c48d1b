package tenant

import "testing"

func TestOperators(t *testing.T) {
	o, err := OperatorsByTokens("f",
		[]byte("operators:\n- {name: ann, tokens: [{sha256: "+hash("one")+"}, {sha256: "+hash("two")+
			"}]}\n- {name: ci, tokens: [{sha256: "+hash("three")+"}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]bool{"one": true, "two": true, "three": true, "": false, "on": false,
		hash("one"): false} {
		if o.Has(token) != want {
			t.Errorf("Has(%q) returns %t, want the opposite", token, !want)
		}
	}
	if (*Operators)(nil).Has("one") {
		t.Error("without a file, there is an operator, want none")
	}
	for text, want := range map[string]string{
		"": "f: operators: is empty; add an operator with a name and tokens, or leave http.operators_file empty",
		"operators:\n- tokens: [{sha256: s3cret}]\n": "f:2: operators[0].name: is missing; " +
			"name the person or program that has these tokens\n" +
			"f:2: operators[0].tokens[0]: sha256 must be the 64 hexadecimal digits that printf %s TOKEN | sha256sum prints",
		"operators:\n- name: ann\n": "f:2: operators[0].tokens: is empty, so no request could be this operator's; " +
			"add a token, or remove the operator",
	} {
		if _, err := OperatorsByTokens("f", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q:\n%v\nwant\n%s", text, err, want)
		}
	}
}
