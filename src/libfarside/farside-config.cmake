# find_package(farside) or find_package(Farside): the target farside::farside, found from where this file is installed.
get_filename_component(farside_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET farside::farside)
  add_library(farside::farside SHARED IMPORTED)
  set_target_properties(farside::farside PROPERTIES
    IMPORTED_LOCATION "${farside_prefix}/lib/libfarside.so.@PROJECT_VERSION@"
    IMPORTED_SONAME "libfarside.so.@soname@"
    INTERFACE_INCLUDE_DIRECTORIES "${farside_prefix}/include")
endif()
unset(farside_prefix)
