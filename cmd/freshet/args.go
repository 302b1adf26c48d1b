package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noWords refuses any.
func noWords(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes flags alone, got %q; see %[1]s --help", cmd.CommandPath(), args[0])
}

// words refuses fewer than least and more than most, and shows how it is right.
func words(least, most int, right string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		return fmt.Errorf("%s got %d words; write %s", cmd.CommandPath(), len(args), right)
	}
}

// wrongValue says in words what is wrong with the value of a flag, of which the
// package for flags says what Go's parser does.
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

// addHelp adds the command help, which refuses what it has no page for.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	help.Args = func(_ *cobra.Command, args []string) error {
		if found, _, err := root.Find(args); err == nil && found != root {
			return nil
		}
		return unknownCommand(root, args)
	}
}
