package freshet_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// manyFiles is up to how many files a package is read in any order. The package comment of one
// with more, in doc.go or in the file that is named after it, names all of them in an order: what
// a reader reads first at the top, in indented lines that begin with a name or several. A file uses names of the files below it, never of one above,
// so that what stands further down can be understood without what stands further up.
const manyFiles = 10

// upward are the arrows upward that are left, by directory. The numbers only fall.
var upward = map[string]int{
	"internal/role/collector": 2, // a listener knows its collector, which has it
}

func TestFilesPointDown(t *testing.T) {
	total, up := 0, map[string][]string{}
	for dir, files := range goFiles(t, ".") {
		arrows := arrowsOf(t, files)
		total += len(arrows.all)
		if len(files) <= manyFiles {
			continue
		}
		for _, problem := range arrows.order {
			t.Errorf("%s: the package comment %s", dir, problem)
		}
		up[dir] = arrows.up
	}
	all := 0
	for _, dir := range slices.Sorted(maps.Keys(up)) {
		all += len(up[dir])
		if most := upward[dir]; len(up[dir]) > most {
			t.Errorf("%s: %d arrows upward, and %d are allowed:\n%s", dir, len(up[dir]), most, strings.Join(up[dir], "\n"))
		} else if len(up[dir]) < most {
			t.Errorf("%s: %d arrows upward are left: lower the number in upward from %d", dir, len(up[dir]), most)
		}
	}
	for dir := range upward {
		if _, many := up[dir]; !many {
			t.Errorf("%s has arrows upward allowed, and is no package of more than %d files", dir, manyFiles)
		}
	}
	t.Logf("%d arrows between files, %d of them upward in the %d packages of more than %d files", total, all, len(up), manyFiles)
}

// The packages under testdata break each rule of the order.
func TestFileOrderCatches(t *testing.T) {
	files := goFiles(t, "testdata/arch")["internal/lib/order"]
	if len(files) <= manyFiles {
		t.Fatalf("%d files, too few to have an order", len(files))
	}
	got := arrowsOf(t, files)
	if want := []string{"does not name forgotten.go", "names gone.go, which is not there"}; !slices.Equal(got.order, want) {
		t.Errorf("%q, not %q", got.order, want)
	}
	dir := filepath.Join("testdata", "arch", "internal", "lib", "order")
	if want := []string{
		filepath.Join(dir, "bottom.go") + ":5: uses Top of top.go",
		filepath.Join(dir, "bottom.go") + ":13: uses top of top.go",
		filepath.Join(dir, "middle.go") + ":6: uses limit of top.go",
	}; !slices.Equal(got.up, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got.up, "\n"), strings.Join(want, "\n"))
	}
}

// goFiles returns the Go files of each directory below root but tests, by its path.
func goFiles(t *testing.T, root string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			dir, err := filepath.Rel(root, filepath.Dir(name))
			all[filepath.ToSlash(dir)] = append(all[filepath.ToSlash(dir)], name)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// arrows are the uses of names across the files of a package.
type arrows struct {
	order   []string // mistakes in the order that doc.go gives
	all, up []string // one for each use of a name of another file, and those against the order
}

// arrowsOf counts where a file uses a function, type, variable or constant that another file of
// the package declares. Not counted are methods and fields, since that takes types; the
// receiver of a method, which may stand in a file of its own; and keys in literals.
func arrowsOf(t *testing.T, names []string) (found arrows) {
	t.Helper()
	set, files, declared := token.NewFileSet(), map[string]*ast.File{}, map[string]string{}
	var doc string
	for _, name := range names {
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(name)
		doc += file.Doc.Text()
		if base == "doc.go" {
			continue
		}
		files[base] = file
		for name := range file.Scope.Objects {
			declared[name] = base // by one of several, if build constraints tell them apart
		}
	}
	at := map[string]int{} // places in the order, from 1
	for _, row := range regexp.MustCompile(`(?m)^\t\w+\.go(, \w+\.go)*`).FindAllString(doc, -1) {
		for name := range strings.SplitSeq(strings.TrimSpace(row), ", ") {
			at[name] = len(at) + 1
			if files[name] == nil {
				found.order = append(found.order, "names "+name+", which is not there")
			}
		}
	}
	for _, base := range slices.Sorted(maps.Keys(files)) {
		if at[base] == 0 {
			found.order = append(found.order, "does not name "+base)
		}
		file := files[base]
		receivers := receiversOf(file)
		for _, id := range file.Unresolved { // in this file
			to := declared[id.Name]
			if to == "" || to == base || receivers[id] {
				continue
			}
			position := set.Position(id.Pos())
			arrow := fmt.Sprintf("%s:%d: uses %s of %s", position.Filename, position.Line, id.Name, to)
			found.all = append(found.all, arrow)
			if at[to] != 0 && at[to] < at[base] {
				found.up = append(found.up, arrow)
			}
		}
	}
	slices.Sort(found.order)
	return found
}

// receiversOf are the identifiers of the types that the methods of a file have.
func receiversOf(file *ast.File) map[*ast.Ident]bool {
	found := map[*ast.Ident]bool{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
			ast.Inspect(f.Recv, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					found[id] = true
				}
				return true
			})
		}
	}
	return found
}
