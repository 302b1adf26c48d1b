package freshet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// manyFiles is the largest number of files in a package that needs no order. A package with more files
// lists all of them in its package comment, in indented lines that begin with one or more file names.
// The file to read first is at the top. A file uses declarations (functions, types, variables,
// constants, methods, fields) only from the files below it. There is one exception, since a method may
// stand in a file below its type: a method may use the type of its receiver, and fields that it takes
// directly from the receiver, even if a file above declares them. So a reader understands a file without
// the files above it, but may have to look up a field of the receiver in one of them.
const manyFiles = 10

func TestFilesPointDown(t *testing.T) {
	all := goFiles(t, ".")
	var many []string
	for dir, files := range all {
		if len(files) > manyFiles {
			many = append(many, dir)
		}
	}
	typed, total := typesOf(t, many), 0
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		arrows := arrowsOf(t, all[dir], typed[dir])
		total += len(arrows.all)
		if typed[dir] == nil {
			continue // small packages need no order
		}
		for _, problem := range arrows.order {
			t.Errorf("%s: the package comment %s", dir, problem)
		}
		if len(arrows.up) > 0 {
			t.Errorf("%s: %d arrows point upward, want none: move a declaration, or move a file in the order:\n%s",
				dir, len(arrows.up), strings.Join(arrows.up, "\n"))
		}
	}
	t.Logf("%d arrows between files; %d packages of more than %d files have an order", total, len(many), manyFiles)
}

// The packages under testdata break each rule of the order at least once.
func TestFileOrderCatches(t *testing.T) {
	const dir = "testdata/arch/internal/lib/order"
	files := goFiles(t, "testdata/arch")["internal/lib/order"]
	if len(files) <= manyFiles {
		t.Fatalf("the package has %d files, too few to need an order", len(files))
	}
	got := arrowsOf(t, files, typesOf(t, []string{dir})[dir])
	wrong := []string{"does not name forgotten.go", "names gone.go, which is not there", "names middle.go twice"}
	if !slices.Equal(got.order, wrong) {
		t.Errorf("the order has the mistakes %q, want %q", got.order, wrong)
	}
	if want := []string{
		dir + "/bottom.go:5: uses Top of top.go",
		dir + "/bottom.go:10: uses n of middle.go",
		dir + "/bottom.go:13: uses top of top.go",
		dir + "/bottom.go:13: uses over of middle.go",
		dir + "/middle.go:6: uses limit of top.go",
	}; !slices.Equal(got.up, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got.up, "\n"), strings.Join(want, "\n"))
	}
}

// goFiles maps the path of each directory below `root` to its Go files, without tests.
func goFiles(t *testing.T, root string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root &&
			(strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
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

// arrows are the places where a file of a package uses a name from another file.
type arrows struct {
	order   []string // mistakes in the order that the package comment gives
	all, up []string // all uses of names of other files, and the uses that break the order
}

// arrowsOf finds where a file uses a function, type, variable or constant that another file of the
// package declares, whatever the build constraints of the files. If typed is not nil, arrowsOf finds
// methods and fields, too. A method and its type may stand in different files. So uses of the receiver's
// type, and of fields that the method takes directly from its receiver, are not counted.
func arrowsOf(t *testing.T, names []string, typed *packageTypes) (found arrows) {
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
			declared[name] = base // any one of the files, if several declare the name under different build constraints
		}
	}
	at := map[string]int{} // a file's place in the order, from 1
	for _, row := range regexp.MustCompile(`(?m)^\t\w+\.go(, \w+\.go)*`).FindAllString(doc, -1) {
		for name := range strings.SplitSeq(strings.TrimSpace(row), ", ") {
			if at[name] != 0 {
				found.order = append(found.order, "names "+name+" twice")
				continue
			}
			at[name] = len(at) + 1
			if files[name] == nil {
				found.order = append(found.order, "names "+name+", which is not there")
			}
		}
	}
	members := map[*ast.Ident]string{}
	if typed != nil {
		members = typed.members(t, set, files)
	}
	for _, base := range slices.Sorted(maps.Keys(files)) {
		if at[base] == 0 {
			found.order = append(found.order, "does not name "+base)
		}
		file := files[base]
		uses, receivers := map[*ast.Ident]string{}, receiversOf(file)
		for _, id := range file.Unresolved { // names that this file does not declare
			if !receivers[id] {
				uses[id] = declared[id.Name]
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && members[id] != "" {
				uses[id] = members[id]
			}
			return true
		})
		for _, id := range slices.SortedFunc(maps.Keys(uses), func(a, b *ast.Ident) int { return int(a.Pos() - b.Pos()) }) {
			to := uses[id]
			if to == "" || to == base {
				continue
			}
			position := set.Position(id.Pos())
			arrow := fmt.Sprintf("%s:%d: uses %s of %s", filepath.ToSlash(position.Filename), position.Line, id.Name, to)
			found.all = append(found.all, arrow)
			if at[to] != 0 && at[to] < at[base] {
				found.up = append(found.up, arrow)
			}
		}
	}
	slices.Sort(found.order)
	return found
}

// packageTypes holds what is needed to type-check a package: its files under the build constraints of this
// machine, and its imports.
type packageTypes struct {
	path    string
	files   []string
	imports types.Importer // reads the compiled imports of the module
}

// typesOf lets the go command compile the imports of the packages. `dirs` are the directories of the
// packages, which may be in several modules.
func typesOf(t *testing.T, dirs []string) map[string]*packageTypes {
	t.Helper()
	modules := map[string][]string{} // directories of packages, by the directory of their module
	for _, dir := range dirs {
		root := dir
		for ; root != "."; root = path.Dir(root) {
			if _, err := os.Stat(path.Join(root, "go.mod")); err == nil {
				break
			}
		}
		modules[root] = append(modules[root], dir)
	}
	found := map[string]*packageTypes{}
	for root, dirs := range modules {
		args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,GoFiles,DepOnly"}
		for _, dir := range dirs {
			args = append(args, path.Join(module, dir))
		}
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = root
		var wrong strings.Builder
		cmd.Stderr = &wrong
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s in %s: %v\n%s", cmd, root, err, &wrong)
		}
		exports := map[string]string{} // files of export data, by import path
		imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
			return os.Open(exports[path])
		})
		for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
			var p struct {
				ImportPath, Export string
				GoFiles            []string
				DepOnly            bool
			}
			if err := lines.Decode(&p); err != nil {
				t.Fatal(err)
			}
			exports[p.ImportPath] = p.Export
			if !p.DepOnly {
				dir := strings.TrimPrefix(p.ImportPath, module+"/")
				found[dir] = &packageTypes{path: p.ImportPath, files: p.GoFiles, imports: imports}
			}
		}
	}
	return found
}

// members returns, for each method and field that `files` uses, the file that declares it.
func (p *packageTypes) members(t *testing.T, set *token.FileSet, files map[string]*ast.File) map[*ast.Ident]string {
	t.Helper()
	var parsed []*ast.File
	for _, name := range p.files {
		if files[name] != nil { // doc.go is not in files
			parsed = append(parsed, files[name])
		}
	}
	info := types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: p.imports}
	checked, err := config.Check(p.path, set, parsed, &info)
	if err != nil {
		t.Fatal(err)
	}
	receivers := map[types.Object]bool{}
	for _, file := range parsed {
		for id := range receiversOf(file) {
			receivers[info.Defs[id]] = true
		}
	}
	delete(receivers, nil) // the names of receivers' types are not in Defs, so they added a nil key
	found := map[*ast.Ident]string{}
	for _, file := range parsed {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				x, named := n.X.(*ast.Ident)
				_, method := info.Uses[n.Sel].(*types.Func)
				if named && !method && receivers[info.Uses[x]] {
					return false
				}
			case *ast.Ident:
				if object := info.Uses[n]; object != nil && object.Pkg() == checked && isMember(object) {
					found[n] = filepath.Base(set.Position(object.Pos()).Filename)
				}
			}
			return true
		})
	}
	return found
}

func isMember(object types.Object) bool {
	switch object := object.(type) {
	case *types.Func:
		return object.Signature().Recv() != nil
	case *types.Var:
		return object.IsField()
	}
	return false
}

// receiversOf returns all identifiers in the receivers of a file's methods: the receivers' names, and
// the names in their types.
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
