"""The compiler: from blueprints to tables, APIs and documentation."""
