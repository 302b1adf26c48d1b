package tenant

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// hash returns a token's hash, as the file has it.
func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// grant returns the grant of a request whose token has no name.
func grant(tenant string, read, write bool) Grant {
	return Grant{Tenant: tenant, Read: read, Write: write}
}

func TestTokens(t *testing.T) {
	a, err := ByTokens("tenants.yaml", []byte(`tenants:
  - name: shop
    tokens: [{sha256: `+hash("first")+`}, {sha256: `+strings.ToUpper(hash("second"))+`}]
  - {name: agents, may: write, tokens: [{sha256: `+hash("agent")+`}]}
  - {name: wall, may: read, tokens: [{sha256: `+hash("screen")+`}]}
  - {name: team, may: read, tokens: [{sha256: `+hash("people")+`}, {sha256: `+hash("prometheus")+`, may: write}, {sha256: `+hash("admin")+`, may: both}]}
  - {name: fleet, tokens: [{sha256: `+hash("first of web")+`, name: web}, {sha256: `+hash("second of web")+`, name: web, may: write}]}
  - {name: all, may: both, tokens: [{sha256: `+hash("any")+`}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why, token string
		headers    []string
		want       Grant
		err        string // text in the error
	}{
		{"the tenant is the token's, not the address'", "first", nil, grant("shop", true, true), ""},
		{"a tenant's second token, so that tokens can be changed", "second", nil, grant("shop", true, true), ""},
		{"a tenant that may only write", "agent", nil, grant("agents", false, true), ""},
		{"a tenant that may only read", "screen", nil, grant("wall", true, false), ""},
		{"a token without rights of its own has the tenant's", "people", nil, grant("team", true, false), ""},
		{"a token with other rights than its tenant", "prometheus", nil, grant("team", false, true), ""},
		{"a token with more rights than its tenant", "admin", nil, grant("team", true, true), ""},
		{"the last token of the file", "any", nil, grant("all", true, true), ""},
		{"a token with a name", "first of web", nil, Grant{Tenant: "fleet", Read: true, Write: true, Token: "web"}, ""},
		{"another token of the name, while they are changed", "second of web", nil,
			Grant{Tenant: "fleet", Write: true, Token: "web"}, ""},
		{"a header that agrees", "first", []string{"shop"}, grant("shop", true, true), ""},

		{"no token", "", nil, Grant{}, "Authorization: Bearer TOKEN"},
		{"a token of no tenant", "firs", nil, Grant{}, "no tenant has this token"},
		{"the hash of a token, which others may read", hash("first"), nil, Grant{}, "no tenant has this token"},
		{"no token, whatever the header says", "", []string{"shop"}, Grant{}, "Authorization: Bearer TOKEN"},
		{"a header that names another tenant", "first", []string{"agents"}, Grant{},
			`X-Scope-OrgID is "agents" and the token belongs to "shop"`},
		{"one of two headers names another tenant", "first", []string{"shop", "agents"}, Grant{}, `X-Scope-OrgID is "agents"`},
		{"an empty header", "first", []string{""}, Grant{}, `X-Scope-OrgID is ""`},
	} {
		got, err := a.Grant(Claim{Address: "default", Token: c.token, Headers: c.headers})
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v; want %+v, %s", c.why, got, err, c.want, c.err)
		}
		if unknown := err != nil && !strings.Contains(c.err, "X-Scope"); errors.Is(err, ErrNoToken) != unknown {
			t.Errorf("%s: the error is ErrNoToken: %t, want %t; %v", c.why, !unknown, unknown, err)
		}
	}
}

// The name of a token goes along with its request, beside the tenant.
func TestTokenInAContext(t *testing.T) {
	for _, g := range []Grant{{Tenant: "fleet", Token: "web"}, {Tenant: "shop"}} {
		ctx := g.NewContext(t.Context())
		name, ok := FromContext(ctx)
		if token := TokenFromContext(ctx); name != g.Tenant || !ok || token != g.Token {
			t.Errorf("the context has tenant %q and token %q, want %+v", name, token, g)
		}
	}
}

func TestHeader(t *testing.T) {
	known, anybody := ByHeader([]string{"shop"}), ByHeader(nil)
	for _, c := range []struct {
		why     string
		access  *Access
		headers []string
		want    string // tenant; empty if the request is refused
	}{
		{"a tenant that is known", known, []string{"shop"}, "shop"},
		{"no header: the address decides, known or not", known, nil, "default"},
		{"an unknown tenant", known, []string{"shp"}, ""},
		{"an unknown tenant, if any name is allowed", anybody, []string{"shp"}, "shp"},
		{"no name", anybody, []string{""}, ""},
		{"a way out of the directory", anybody, []string{".."}, ""},
		{"several names in one header", anybody, []string{"shop|blog"}, ""},
		{"a client's header beside the proxy's", anybody, []string{"blog", "shop"}, ""},
		{"a nil Access ignores the header", nil, []string{"shop"}, "default"},
	} {
		got, err := c.access.Grant(Claim{Address: "default", Token: "any", Headers: c.headers})
		if got.Tenant != c.want || (err == nil) != (c.want != "") || got.Read != (err == nil) || got.Write != (err == nil) ||
			errors.Is(err, ErrNoToken) {
			t.Errorf("%s: %+v, %v; want %q", c.why, got, err, c.want)
		}
	}
}

// All mistakes are reported at once, each with its line. A value that may be an unhashed token is never
// shown.
func TestTenantsFileProblems(t *testing.T) {
	one, two := hash("one"), hash("two")
	for _, c := range []struct{ why, text, want string }{
		{"empty, as half an edit leaves it", "",
			"f: tenants: is empty, so no request would be allowed; add a tenant with a name and tokens"},
		{"not YAML", "tenants: [", "f:1: is not YAML: did not find expected node content"},
		{
			"several",
			"tenants:\n- name: a/b\n  may: wirte\n  tokens:\n  - sha256: " + one + "\n- nmae: c\n  tokens: [{sha256: " + two +
				"}]\n",
			`f:2: tenants[0].name = a/b: tenant "a/b": '/' is not allowed; use 1 to 64 letters, digits, dots, dashes and underscores
f:3: tenants[0].may = wirte: must be read, write or both
f:6: tenants[1].nmae = c: is not a key; did you mean tenants[1].name?
f:6: tenants[1].name: tenant "": not a name; use 1 to 64 letters, digits, dots, dashes and underscores`,
		},
		{
			"the token itself", "tenants:\n- name: a\n  tokens:\n  - sha256: " + one + "\n  - sha256: s3cret\n",
			"f:5: tenants[0].tokens[1]: sha256 must be the 64 hexadecimal digits that printf %s TOKEN | sha256sum prints",
		},
		{"an invalid right of a token", "tenants:\n- name: a\n  tokens:\n  - sha256: " + one + "\n    may: all\n",
			"f:5: tenants[0].tokens[0].may = all: must be read, write or both"},
		{"the token as its name, which others would see", "tenants:\n- name: a\n  tokens:\n  - sha256: " + one +
			"\n    name: one\n",
			"f:4: tenants[0].tokens[0]: name is the token itself, and is shown to others; choose another"},
		{"a name of a token that is too long, and is not shown", "tenants:\n- name: a\n  tokens:\n  - sha256: " + one +
			"\n    name: " + one + "x\n",
			"f:4: tenants[0].tokens[0]: name must be 1 to 64 letters, digits, dots, dashes and underscores"},
		{"the token without its key", "tenants:\n- name: a\n  tokens: [s3cret]\n",
			"f:3: tenants[0].tokens[0]: is one value; write its keys below it, indented"},
		{"a tenant without tokens", "tenants:\n- name: a\n",
			"f:2: tenants[0].tokens: is empty, so no request could be this tenant's; add a token, or remove the tenant"},
		{
			"one token for two tenants",
			"tenants:\n- {name: a, tokens: [{sha256: " + one + "}]}\n- {name: b, tokens: [{sha256: " + one + "}]}\n",
			"f:3: tenants[1].tokens[0]: is the same token as tenants[0].tokens[0]; give each its own",
		},
		{
			"one name for two tenants",
			"tenants:\n- {name: a, tokens: [{sha256: " + one + "}]}\n- {name: a, tokens: [{sha256: " + two + "}]}\n",
			"f:3: tenants[1].name = a: is also the name of tenants[0]; put all tokens of a tenant below one name",
		},
	} {
		a, err := ByTokens("f", []byte(c.text))
		if a != nil || err == nil || err.Error() != c.want {
			t.Errorf("%s:\n%v\nwant\n%s", c.why, err, c.want)
		}
	}
}
