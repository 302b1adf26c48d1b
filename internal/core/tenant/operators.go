package tenant

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Operators holds the tokens of the people and programs that may see and change the whole process, with
// all its tenants. It is immutable: a reload makes a new one. A nil *Operators has no tokens.
type Operators struct{ hashes [][sha256.Size]byte }

// OperatorsByTokens reads the hashes in `text`, the contents of `file`. Its errors name the file
// and every mistake in it.
func OperatorsByTokens(file string, text []byte) (*Operators, error) {
	read, _, err := conf.New("", operatorsFile{}).LoadText(file, text, func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	if len(read.Operators) == 0 {
		return nil,
			fmt.Errorf("%s: operators: is empty; add an operator with a name and tokens, or leave http.operators_file empty",
				file)
	}
	o := &Operators{}
	for _, one := range read.Operators {
		for _, t := range one.Tokens {
			hash, _ := hashBytes(t.SHA256) // validated
			o.hashes = append(o.hashes, hash)
		}
	}
	return o, nil
}

// Has reports whether a token is an operator's. It compares the token with all operators' tokens, so
// that the duration of the search does not reveal the matching token.
func (o *Operators) Has(token string) bool {
	if o == nil || token == "" {
		return false
	}
	hash, found := sha256.Sum256([]byte(token)), 0
	for i := range o.hashes {
		found |= subtle.ConstantTimeCompare(hash[:], o.hashes[i][:])
	}
	return found == 1
}

// operatorsFile is the file with the operators' tokens.
type operatorsFile struct {
	Operators []operatorEntry `yaml:"operators" help:"people or programs that may see and change the whole process"`
}

type operatorEntry struct {
	Name   string          `yaml:"name" help:"name of the person or program, for readers of the file"`
	Tokens []operatorToken `yaml:"tokens" help:"hashes of the operator's tokens"`
}

// operatorToken is a section of its own, for the same reasons as tokenHash.
type operatorToken struct {
	SHA256 string `yaml:"sha256" help:"SHA-256 of the token, in hexadecimal"`
}

// Validate is part of conf.Validator.
func (e operatorEntry) Validate() (problems []conf.Problem) {
	if e.Name == "" {
		problems = append(problems,
			conf.Problem{Key: "name", Text: "is missing; name the person or program that has these tokens"})
	}
	if len(e.Tokens) == 0 {
		problems = append(problems,
			conf.Problem{
				Key: "tokens", Text: "is empty, so no request could be this operator's; add a token, or remove the operator",
			})
	}
	return problems
}

// Validate is part of conf.Validator.
func (t operatorToken) Validate() []conf.Problem {
	if _, err := hashBytes(t.SHA256); err != nil {
		return []conf.Problem{{Text: err.Error()}}
	}
	return nil
}
