package ruleset

import (
	"slices"
	"testing"
)

// A change of one group reads only that group again. A group that this version cannot evaluate is said once, and is
// still listed.
func TestTextsAreReadOnce(t *testing.T) {
	var said []string
	p := NewParser(promQL, func(tenant, namespace, group, _ string) {
		said = append(said, tenant+"/"+namespace+"/"+group)
	})
	text := func(name, expr string) Text {
		g := Group{}
		if err := Decode([]byte("{name: "+name+", rules: [{record: r, expr: '"+expr+"'}]}"), &g, new(any)); err != nil {
			t.Fatal(err)
		}
		x, err := g.Text("n")
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	parse := func(wantBad []string, all ...Text) {
		t.Helper()
		var bad []string
		groups := p.Parse("acme", all)
		for i, g := range groups {
			if g.Namespace != "n" || g.Name != all[i].Name || len(g.Rules) != 1 {
				t.Errorf("group %s/%s has %d rules, want n/%s with one", g.Namespace, g.Name, len(g.Rules), all[i].Name)
			}
			if g.Problem != "" {
				bad = append(bad, g.Name)
			}
		}
		if len(groups) != len(all) || !slices.Equal(bad, wantBad) {
			t.Errorf("%d groups, of which %q have problems; want %d and %q", len(groups), bad, len(all), wantBad)
		}
	}
	good, bad := text("good", "x"), text("bad", "sum(")
	parse([]string{"bad"}, good, bad)
	parse([]string{"bad"}, text("good", "y"), bad)
	parse(nil, good, text("bad", "z"))
	parse([]string{"bad"}, bad)
	if want := []string{"acme/n/bad", "acme/n/bad"}; !slices.Equal(said, want) {
		t.Errorf("the invalid groups are said as %q, want %q", said, want)
	}
	if parse(nil); len(p.of) != 0 {
		t.Error("a tenant without groups is remembered")
	}
}
