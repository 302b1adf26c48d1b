package tenant

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Operators are the tokens of people who may see and change the whole process, all
// tenants in it. It never changes: a file that is read again makes another one. nil has
// nobody.
type Operators struct{ hashes [][sha256.Size]byte }

// OperatorsByTokens reads the hashes that text has, which is that of file. Its errors
// name the file, and all that is wrong with it.
func OperatorsByTokens(file string, text []byte) (*Operators, error) {
	read, _, err := conf.New("", operatorsFile{}).LoadText(file, text, func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	if len(read.Operators) == 0 {
		return nil, fmt.Errorf("%s: operators: has nobody in it; add an operator with a name and tokens, or leave http.operators_file empty", file)
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

// Has reports whether a token is an operator's. It looks at all of them, whichever fits,
// so that the time it takes says nothing.
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
	Name   string          `yaml:"name" help:"of the person or program, for those who read the file"`
	Tokens []operatorToken `yaml:"tokens" help:"hashes of its tokens"`
}

// operatorToken is a section of its own for the reasons of tokenHash.
type operatorToken struct {
	SHA256 string `yaml:"sha256" help:"SHA-256 of the token, in hexadecimal"`
}

// Validate is part of conf.Validator.
func (e operatorEntry) Validate() (problems []conf.Problem) {
	if e.Name == "" {
		problems = append(problems, conf.Problem{Key: "name", Text: "is missing; say whose tokens these are"})
	}
	if len(e.Tokens) == 0 {
		problems = append(problems, conf.Problem{Key: "tokens", Text: "has none, so that nobody could be this operator; add one, or take the operator out"})
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
