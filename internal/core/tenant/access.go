package tenant

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Access decides to which tenant a request belongs, and what it may do there. It is immutable: a reload
// makes a new one. A nil *Access ignores the request's claims, and uses the tenant of the address at
// which the request came in.
type Access struct {
	trusted bool            // requests authenticate by the header, not by tokens
	known   map[string]bool // names that the header may give; nil for any
	tokens  []token
}

// token is the hash of a token, and its grant.
type token struct {
	hash  [sha256.Size]byte
	grant Grant
}

// Claim is what a request says about itself.
type Claim struct {
	Address string   // tenant of the address at which the request came in
	Token   string   // "" if there is none
	Headers []string // all values of X-Scope-OrgID
}

// Grant is a request's tenant, and what it may do there.
type Grant struct {
	Tenant      string
	Read, Write bool
	Token       string // name of the request's token; empty if it has none
}

// NewContext returns ctx for a request with this grant.
func (g Grant) NewContext(ctx context.Context) context.Context {
	ctx = NewContext(ctx, g.Tenant)
	if g.Token == "" {
		return ctx
	}
	return context.WithValue(ctx, tokenKey{}, g.Token)
}

type tokenKey struct{}

// TokenFromContext returns the name of a request's token; empty if it has none.
func TokenFromContext(ctx context.Context) string {
	name, _ := ctx.Value(tokenKey{}).(string)
	return name
}

// both is the grant of a request that may read and write.
func both(name string) Grant { return Grant{Tenant: name, Read: true, Write: true} }

// ErrNoToken means that the request did not authenticate. Any other error of Access.Grant means
// that the request authenticated but asks for something that it may not do.
var ErrNoToken = errors.New("not authenticated")

// ByHeader trusts the tenant header, which a proxy sets. `known` has the names that the header may
// give; nil means any name.
func ByHeader(known []string) *Access {
	a := &Access{trusted: true}
	if known != nil {
		a.known = map[string]bool{}
		for _, name := range known {
			a.known[name] = true
		}
	}
	return a
}

// ByTokens trusts the tokens whose hashes are in `text`, the contents of `file`. Its errors name
// the file and every mistake in it.
func ByTokens(file string, text []byte) (*Access, error) {
	read, _, err := conf.New("", tenantsFile{}).LoadText(file, text, func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	if len(read.Tenants) == 0 {
		return nil,
			fmt.Errorf("%s: tenants: is empty, so no request would be allowed; add a tenant with a name and tokens", file)
	}
	a := &Access{}
	for _, t := range read.Tenants {
		for _, h := range t.Tokens {
			hash, _ := h.bytes() // validated
			may := cmp.Or(h.May, t.May)
			a.tokens = append(a.tokens,
				token{hash, Grant{Tenant: t.Name, Read: may != mayWrite, Write: may != mayRead, Token: h.Name}})
		}
	}
	return a, nil
}

// Trusts reports whether a header names the tenant.
func (a *Access) Trusts() bool { return a != nil && a.trusted }

// Grant returns what the request with this claim may do.
func (a *Access) Grant(c Claim) (Grant, error) {
	switch {
	case a == nil:
		return both(c.Address), nil
	case a.trusted:
		return a.byHeader(c)
	case c.Token == "":
		return Grant{},
			fmt.Errorf("%w: the request has no token; send a tenant's token in the header Authorization: Bearer TOKEN",
				ErrNoToken)
	}
	g, ok := a.find(c.Token)
	if !ok {
		return Grant{},
			fmt.Errorf("%w: no tenant has this token; add its SHA-256 to http.tenants_file and reload", ErrNoToken)
	}
	for _, header := range c.Headers {
		if header != g.Tenant {
			return Grant{},
				fmt.Errorf("X-Scope-OrgID is %.80q and the token belongs to %q; "+
					"send a token of the tenant in X-Scope-OrgID, or leave the header out", header, g.Tenant)
		}
	}
	return g, nil
}

// find compares the text with every token, so that the duration of the search does not reveal the
// matching token.
func (a *Access) find(text string) (g Grant, ok bool) {
	hash, found := sha256.Sum256([]byte(text)), -1
	for i := range a.tokens {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], a.tokens[i].hash[:]), i, found)
	}
	if found < 0 {
		return Grant{}, false
	}
	return a.tokens[found].grant, true
}

func (a *Access) byHeader(c Claim) (Grant, error) {
	name := c.Address
	switch len(c.Headers) {
	case 0:
		return both(name), nil
	case 1:
		name = c.Headers[0]
	default: // several: one is from the proxy, the others may be from the client
		return Grant{},
			fmt.Errorf("X-Scope-OrgID is given %d times; let the proxy replace the client's header", len(c.Headers))
	}
	if err := Check(name); err != nil {
		return Grant{}, fmt.Errorf("X-Scope-OrgID: %w", err)
	}
	if a.known != nil && !a.known[name] {
		return Grant{},
			fmt.Errorf("X-Scope-OrgID: the tenant %q is not known here; add it to limits.tenants, "+
				"or set http.allow_unknown_tenants", name)
	}
	return both(name), nil
}

// tenantsFile is the file with the tenants' tokens.
type tenantsFile struct {
	Tenants []entry `yaml:"tenants" help:"tenants and their tokens"`
}

// entry is one tenant of the file.
type entry struct {
	Name   string      `yaml:"name" help:"name of the tenant"`
	May    string      `yaml:"may" help:"read, write, or both, which is the default"`
	Tokens []tokenHash `yaml:"tokens" help:"hashes of the tenant's tokens"`
}

// tokenHash is a section of its own: its problems then name a line and do not print the value,
// which may be a token that was not hashed.
type tokenHash struct {
	SHA256 string `yaml:"sha256" help:"SHA-256 of the token, in hexadecimal"`
	Name   string `yaml:"name" help:"names the senders that have the token; several may have one name"`
	May    string `yaml:"may" help:"read, write or both, for this token; default: as for the tenant"`
}

const (
	mayRead  = "read"
	mayWrite = "write"
	mayBoth  = "both"
)

// Validate is part of conf.Validator.
func (f tenantsFile) Validate() (problems []conf.Problem) {
	names, owners := map[string]int{}, map[[sha256.Size]byte]string{}
	for i, t := range f.Tenants {
		if first, given := names[t.Name]; given {
			problems = append(problems,
				conf.Problem{
					Key:  fmt.Sprintf("tenants[%d].name", i),
					Text: fmt.Sprintf("is also the name of tenants[%d]; put all tokens of a tenant below one name", first),
				})
		} else {
			names[t.Name] = i
		}
		for j, h := range t.Tokens {
			hash, err := h.bytes()
			if err != nil {
				continue // the Validate method of h reports it
			}
			at := fmt.Sprintf("tenants[%d].tokens[%d]", i, j)
			if first, given := owners[hash]; given {
				problems = append(problems, conf.Problem{Key: at, Text: "is the same token as " + first + "; give each its own"})
			} else {
				owners[hash] = at
			}
		}
	}
	return problems
}

// Validate is part of conf.Validator.
func (e entry) Validate() (problems []conf.Problem) {
	if err := Check(e.Name); err != nil {
		problems = append(problems, conf.Problem{Key: "name", Text: err.Error()})
	}
	problems = append(problems, checkMay(e.May)...)
	if len(e.Tokens) == 0 {
		problems = append(problems,
			conf.Problem{
				Key: "tokens", Text: "is empty, so no request could be this tenant's; add a token, or remove the tenant",
			})
	}
	return problems
}

// Validate is part of conf.Validator.
func (h tokenHash) Validate() []conf.Problem {
	problems := checkMay(h.May)
	hash, err := h.bytes()
	switch {
	case err != nil:
		problems = append(problems, conf.Problem{Text: err.Error()})
	case h.Name == "":
	case sha256.Sum256([]byte(h.Name)) == hash:
		problems = append(problems, conf.Problem{Text: "name is the token itself, and is shown to others; choose another"})
	case Check(h.Name) != nil:
		problems = append(problems, conf.Problem{Text: "name must be " + naming})
	}
	return problems
}

func checkMay(may string) []conf.Problem {
	switch may {
	case "", mayRead, mayWrite, mayBoth:
		return nil
	}
	return []conf.Problem{{Key: "may", Text: "must be read, write or both"}}
}

func (h tokenHash) bytes() ([sha256.Size]byte, error) { return hashBytes(h.SHA256) }

// hashBytes reads the hash of a token.
func hashBytes(text string) (hash [sha256.Size]byte, err error) {
	read, err := hex.DecodeString(text)
	if err != nil || len(read) != len(hash) {
		return hash,
			fmt.Errorf("sha256 must be the %d hexadecimal digits that printf %%s TOKEN | sha256sum prints", 2*len(hash))
	}
	return [sha256.Size]byte(read), nil
}
