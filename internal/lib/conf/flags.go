package conf

import (
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// AddFlags adds a flag for each key that is a value or a list of values. Load reads the flags'
// values, so that mistakes in flags are reported together with mistakes in the file.
func (s *Schema[T]) AddFlags(flags *pflag.FlagSet) {
	for _, k := range s.keys {
		if k.fileOnly() {
			continue
		}
		added := flags.VarPF(k, k.flagName(), "", k.help)
		for _, path := range s.formerPaths(k.path) {
			_ = flags.SetAnnotation(added.Name, formerly, append(added.Annotations[formerly], flagName(path)))
		}
		if k.preset.Kind() == reflect.Bool {
			added.NoOptDefVal = "true" // --flag means --flag=true
		}
	}
}

// formerly is the annotation that holds the former names of a flag.
const formerly = "formerly"

// RenamedFlag returns the present name of a flag that was formerly called `name`, or "" if there is
// none.
func RenamedFlag(flags *pflag.FlagSet, name string) (now string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(f.Annotations[formerly], name) {
			now = f.Name
		}
	})
	return now
}

// Set keeps texts from the command line: the last text of a value, and all texts of a list.
func (k *key) Set(text string) error {
	if shapeOf(k.preset.Type()) == list {
		k.flag = append(k.flag, splitList(text)...)
		return nil
	}
	k.flag = []string{text}
	return nil
}

// String returns the default, which the help shows.
func (k *key) String() string {
	if k.flag != nil {
		return k.veil.show(strings.Join(k.flag, ","))
	}
	return format(k.preset)
}

// Type returns the placeholder that the help shows after the flag.
func (k *key) Type() string { return typeName(k.preset.Type()) }
