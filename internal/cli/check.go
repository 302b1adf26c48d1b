package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/rulefiles"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/settings"
)

func newCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check configuration files",
		Long: `Reads each configuration file as serve does, and lists all its problems, or says that
it is fine. - is standard input. As for serve, FRESHET_ environment variables override
a file; misspelt ones are pointed out. A running server shows <secret> in place of each
secret in its configuration: fill the secrets in before you check it.

The rule files that a file names are read, too, as serve reads them: relative paths begin
at the working directory. serve --check also reads files of tokens and certificates.

The exit code is 0 if all files are fine, otherwise 2.`,
		Example: `  freshet check /etc/freshet.yaml
  freshet check --no-rules --json environments/*.yaml
  freshet config --server prod:7125 | freshet check --no-rules -`,
		Args: command.Words(1, math.MaxInt, "freshet check freshet.yaml, or - for standard input"),
	}
	asJSON := cmd.Flags().Bool("json", false, "print JSON: an object for each file")
	noRules := cmd.Flags().Bool("no-rules", false, "read no rule files, as those of another machine are not here")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		schema, code := settings.Schema(), command.OK
		var all []checkedFile
		for _, file := range files {
			checked := checkFile(schema, file, cmd.InOrStdin(), !*noRules)
			if all = append(all, checked); len(checked.Problems) > 0 {
				code = command.Usage
			}
			if *asJSON {
				continue
			}
			if err := checked.print(cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
				return err
			}
		}
		for _, typo := range schema.EnvTypos(os.Environ(), settings.Variable, apiclient.ServerVariable,
			apiclient.TokenVariable, apiclient.CAVariable) {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", typo)
		}
		if *asJSON {
			if err := terminal.PrintJSON(cmd.OutOrStdout(), all); err != nil {
				return err
			}
		}
		return command.Exit(code)
	}
	return cmd
}

// checkedFile is the result of checking a file.
type checkedFile struct {
	File      string   `json:"file"`
	OK        bool     `json:"ok"`
	Sockets   int      `json:"sockets"`        // number of DogStatsD sockets
	Rules     int      `json:"rules"`          // of mapping
	RuleFiles int      `json:"rule_files"`     // 0 if they are not read
	FileRules int      `json:"rules_of_files"` // alerting and recording rules
	Problems  []string `json:"problems"`

	namesFiles bool // rule files, or globs of them, and they are read
}

func checkFile(schema *conf.Schema[settings.Config], file string, stdin io.Reader, withRules bool) checkedFile {
	checked := checkedFile{File: file, Problems: []string{}}
	name, text, err := readConfigFile(file, stdin)
	if err == nil {
		var c settings.Config
		if c, _, err = schema.LoadText(name, text, os.LookupEnv); err == nil && withRules {
			err = checked.readRules(c)
		}
		if err == nil {
			checked.OK, checked.Sockets, checked.Rules = true, socketsOf(c), len(c.Mapping.Rules)
			return checked
		}
	}
	checked.Problems = conf.Lines(err)
	return checked
}

// readRules reads the rule files that a configuration names, as a server with this configuration does.
func (f *checkedFile) readRules(c settings.Config) error {
	patterns := c.Rules.Patterns(c.HTTP.Tenant)
	byTenant, problems := rulefiles.ReadTenants(patterns, promapi.NewParser(c.Query, func() {}))
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	f.namesFiles = len(patterns) > 0
	for _, set := range byTenant {
		_, rules := set.Counts()
		f.RuleFiles, f.FileRules = f.RuleFiles+len(set), f.FileRules+rules
	}
	return nil
}

// socketsOf counts the DogStatsD sockets that are not turned off.
func socketsOf(c settings.Config) int {
	n := len(c.DogStatsD.Listeners)
	for _, address := range []string{c.DogStatsD.UDP, c.DogStatsD.Unixgram, c.DogStatsD.Unix} {
		if address != "" {
			n++
		}
	}
	return n
}

// readConfigFile returns the text of a file, and a name for the file in messages. For the file -, it
// reads standard input.
func readConfigFile(file string, stdin io.Reader) (name string, text []byte, err error) {
	if file == "-" {
		text, err = io.ReadAll(stdin)
		return "stdin", text, err
	}
	if file == "" {
		return "", nil, errors.New("a file name is empty; name a file, or - for standard input")
	}
	text, err = conf.ReadFile(file)
	return file, text, err
}

func (f checkedFile) print(out, notes io.Writer) error {
	if f.OK {
		ofFiles := ""
		if f.namesFiles {
			ofFiles = fmt.Sprintf(", %s in %s", counted(f.FileRules, "rule"), counted(f.RuleFiles, "rule file"))
		}
		_, err := fmt.Fprintf(out, "%s: ok: %s, %s%s\n", f.File, counted(f.Sockets, "DogStatsD socket"),
			counted(f.Rules, "mapping rule"), ofFiles)
		return err
	}
	if _, err := fmt.Fprintf(notes, "%s: %d to fix:\n", f.File, len(f.Problems)); err != nil {
		return err
	}
	for _, p := range f.Problems {
		if _, err := fmt.Fprintf(notes, "  %s\n", p); err != nil {
			return err
		}
	}
	return nil
}
