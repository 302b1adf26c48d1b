package helm

import (
	"encoding/json"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
)

// schema is a part of values.schema.json.
type schema struct {
	Ref         string `json:"$ref"`
	Description string
	Properties  map[string]json.RawMessage
	Additional  json.RawMessage `json:"additionalProperties"`
	Items       json.RawMessage
	Defs        map[string]json.RawMessage `json:"$defs"`
}

// schemaReader walks through values.schema.json.
type schemaReader struct {
	*testing.T
	defs map[string]json.RawMessage
}

// read returns a part of the schema, with what it refers to.
func (r *schemaReader) read(text json.RawMessage) (s schema) {
	r.Helper()
	check(r.T, json.Unmarshal(text, &s))
	if s.Ref == "" {
		return s
	}
	to := r.read(r.defs[strings.TrimPrefix(s.Ref, "#/$defs/")])
	if s.Description != "" {
		to.Description = s.Description
	}
	return to
}

// walk checks a value: it is described, and what it may have is known, and has a default in values.yaml, unless that
// leaves all of it out.
func (r *schemaReader) walk(path string, text json.RawMessage, value any, given bool) {
	r.Helper()
	if string(text) == "false" {
		return // refused
	}
	s := r.read(text)
	if s.Description == "" {
		r.Errorf("%s: is not described", path)
	}
	if path == ".config" || strings.HasSuffix(path, ".config") || path == ".global" {
		return // Freshet's own settings, and values of other charts
	}
	if !given {
		r.Errorf("%s: has no default in values.yaml", path)
	}
	if len(s.Properties) > 0 && string(s.Additional) != "false" && !strings.Contains(path, "extraVolume") {
		r.Errorf("%s: takes a value that is misspelt", path)
	}
	defaults, _ := value.(map[string]any)
	for name, property := range s.Properties {
		in, given := defaults[name]
		r.walk(path+"."+name, property, in, given || len(defaults) == 0)
	}
	if s.Items != nil {
		r.walk(path+"[]", s.Items, nil, true)
	}
}

// The schema describes each value and takes no other, and values.yaml has a default for each.
func TestSchema(t *testing.T) {
	c := loadChart(t)
	if err := chartutil.ValidateAgainstSchema(c, c.Values); err != nil {
		t.Error(err)
	}
	var whole schema
	check(t, json.Unmarshal(c.Schema, &whole))
	r := schemaReader{t, whole.Defs}
	r.walk("", c.Schema, map[string]any(c.Values), true)
}
