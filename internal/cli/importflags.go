package cli

import (
	"fmt"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/spf13/pflag"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// importFlags are the flags of commands that import.
type importFlags struct {
	server  *apiclient.Server
	tenant  *string
	add     *[]string
	workDir *string
	asJSON  *bool
}

func newImportFlags(flags *pflag.FlagSet) importFlags {
	return importFlags{
		server: apiclient.Flags(flags),
		tenant: tenantFlag(flags),
		add: flags.StringArray("label", nil, "add the label `NAME=VALUE` to each series that has none of the name; "+
			"may be repeated"),
		workDir: flags.String("work-dir", "", "`directory` with room for the largest block (default the system's for "+
			"temporary files)"),
		asJSON: flags.Bool("json", false, "print each block as a line of JSON"),
	}
}

func tenantFlag(flags *pflag.FlagSet) *string {
	return flags.String("tenant", "", "`tenant` (default the tenant of the server's address)")
}

// labelsWith returns the labels that are added to each series: `external`, and in front of them those of --label.
func labelsWith(external labels.Labels, flags []string) (labels.Labels, error) {
	b := labels.NewBuilder(external)
	for _, text := range flags {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == model.MetricNameLabel || !model.UTF8Validation.IsValidLabelName(name) {
			return labels.EmptyLabels(), conf.Mistake(fmt.Errorf("--label %s: is no label; write it like cluster=eu", text))
		}
		b.Set(name, value) // an empty value removes the label
	}
	return b.Labels(), nil
}
