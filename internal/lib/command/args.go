package command

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/lib/conf"
)

// NoWords refuses any arguments.
func NoWords(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no arguments, only flags; got %q; see %[1]s --help", cmd.CommandPath(), args[0])
}

// Words refuses fewer than `least` or more than `most` arguments, and shows the right form.
func Words(least, most int, right string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		return fmt.Errorf("%s got %d words; write %s", cmd.CommandPath(), len(args), right)
	}
}

// Unknown refuses a word that is no command below `parent`, and suggests the likely one.
func Unknown(parent *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range parent.Commands() {
		names = append(names, c.Name())
	}
	if near := conf.Nearest(args[0], names); near != "" {
		return fmt.Errorf("unknown command: %s; did you mean %s %s?", args[0], parent.CommandPath(), near)
	}
	return fmt.Errorf("unknown command: %s; see freshet help", args[0])
}

// flagError explains an error in a command's flags: it suggests the likely flag, and shows the
// form of a value.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return wrongValue(err)
	}
	name := unknown.GetSpecifiedName()
	if now := conf.RenamedFlag(cmd.Flags(), name); now != "" {
		return fmt.Errorf("--%s: was renamed: say --%s", name, now)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := conf.Nearest(name, names); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// wrongValue says in words what is wrong with the value of a flag. pflag would quote Go's parser.
func wrongValue(err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &invalid) || !errors.As(err, &number) {
		return err
	}
	must := "must be a whole number"
	switch invalid.GetFlag().Value.Type() {
	case "float64":
		must = "must be a number"
	case "uint64":
		must = "must be a whole number of 0 or more"
	case "bool":
		must = "must be true or false"
	}
	if errors.Is(number, strconv.ErrRange) {
		must += " that is not as large"
	}
	return fmt.Errorf("--%s = %s: %s", invalid.GetFlag().Name, invalid.GetValue(), must)
}
