// Command talos-config-check validates the Talos machine configuration on its standard input with the
// code of Talos, for the platform mode of its argument: metal, cloud or container.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

type mode struct{ name string }

func (m mode) String() string        { return m.name }
func (m mode) RequiresInstall() bool { return m.name == "metal" }
func (m mode) InContainer() bool     { return m.name == "container" }

func main() {
	data, err := io.ReadAll(os.Stdin)
	fail(err)
	provider, err := configloader.NewFromBytes(data)
	fail(err)
	warnings, err := provider.Validate(mode{os.Args[1]}, validation.WithStrict())
	for _, warning := range warnings {
		fmt.Println("warning:", warning)
	}
	fail(err)
	fmt.Println(provider.Machine().Type())
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
