package deploy_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is the part of a workflow of GitHub that the tests check.
type workflow struct {
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]struct {
		Container struct {
			Image string `yaml:"image"`
		} `yaml:"container"`
		Steps []struct {
			Uses string         `yaml:"uses"`
			With map[string]any `yaml:"with"`
			Run  string         `yaml:"run"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

func readWorkflow(t *testing.T, name string) workflow {
	t.Helper()
	var w workflow
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join("..", ".github", "workflows", name))), &w); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return w
}

// The public workflow runs .ci/run and nothing of its own, with the version of Go that go.mod asks for.
func TestTheWorkflowRunsWhatCIRuns(t *testing.T) {
	job := readWorkflow(t, "check.yml").Jobs["check"]
	version := goVersion(t)
	if !strings.HasPrefix(job.Container.Image, "golang:"+version+"-") {
		t.Errorf("the workflow runs in %s, and go.mod asks for Go %s", job.Container.Image, version)
	}
	var ran []string
	for _, step := range job.Steps {
		if step.Run != "" {
			ran = append(ran, step.Run)
		}
	}
	if n := len(ran); n != 2 || !strings.HasPrefix(ran[0], "git config ") || ran[1] != "bash .ci/run" {
		t.Errorf("the workflow runs %q, want only .ci/run in a repository that git trusts", ran)
	}
	if depth := job.Steps[0].With["fetch-depth"]; depth != 0 {
		t.Errorf("fetch-depth is %v: without all commits, TestUpgrade has no previous release", depth)
	}
}

// goVersion is the minor version of Go that go.mod asks for.
func goVersion(t *testing.T) string {
	t.Helper()
	return regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))[1]
}

// The workflow of a release builds it by a target of the Makefile that exists, and uploads the directory that this
// target fills. Only it may write.
func TestTheWorkflowOfAReleaseUploadsWhatMakeBuilds(t *testing.T) {
	steps := readWorkflow(t, "release.yml").Jobs["release"].Steps
	var all strings.Builder
	for _, step := range steps {
		all.WriteString(step.Run + "\n")
	}
	if !strings.Contains(all.String(), "make release-snapshot\n") || !strings.Contains(all.String(), " dist/*\n") ||
		!strings.Contains(read(t, "../Makefile"), "\nrelease-snapshot: ") || steps[0].With["fetch-depth"] != 0 {
		t.Errorf("the workflow runs\n%s", all.String())
	}
	// The version in go.mod is the oldest that can build. A release has the fixes of the newest.
	with := steps[1].With
	if version := goVersion(t); with["go-version"] != version || with["check-latest"] != true {
		t.Errorf("a release is built by Go of %v, want the newest %s", with, version)
	}
	for name, want := range map[string]string{"check.yml": "read", "release.yml": "write"} {
		if got := readWorkflow(t, name).Permissions["contents"]; got != want {
			t.Errorf("%s may %s the repository, want %s", name, got, want)
		}
	}
}

// GitHub shows a form only if it is valid YAML with a name, a description and a body.
func TestFormsOfIssues(t *testing.T) {
	for _, name := range []string{"bug.yml", "idea.yml"} {
		var form struct {
			Name, Description string
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label, Description string }
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, filepath.Join("..", ".github", "ISSUE_TEMPLATE", name))), &form); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s lacks its name, description or body: %+v", name, form)
		}
		for _, field := range form.Body {
			if field.Type != "textarea" || field.ID == "" || field.Attributes.Label == "" {
				t.Errorf("%s has the field %+v", name, field)
			}
			if says := field.Attributes.Description; strings.Contains(says, "freshet config") &&
				!(strings.Contains(says, "freshet config --server") && strings.Contains(says, "without the secrets")) {
				t.Errorf("%s asks for the secrets that freshet config prints: %s", name, says)
			}
		}
	}
}
